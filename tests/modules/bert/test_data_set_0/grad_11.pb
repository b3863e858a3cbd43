B"body.layers.0.attention.value.biasJ€ÂÈ=
ßİ¿ğjûpË¿$Z[ï¤Õ?H âcüQ¿?àf‰¦Ô?ê¥šeó"×?#sµÀÊß¿ùukHã?4”wF»mÌ?nWVVõİÜ¿†·ÕZ,‘Ù?C2¤«S‘æ¿¾¬k…™HÉ?D}àÌÛ”?£i±Ù=Í¿"£^-›6À?