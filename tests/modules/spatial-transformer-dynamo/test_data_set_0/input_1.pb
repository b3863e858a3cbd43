BthetaJ0õk¿œ»¿‚Gu¿Ÿ«¡>Tn–>›P¾šìL>L!o?O
>Õ³¿NW
?sn”?