B#body.layers.1.attention_norm.weightJ€äQ»ö¨œ¿+ûOR
l¡?1ÓİÕaİ‘?‡+M_IÜ¤¿”Å|–œnŒ¿ì•×¿Ù”?KÁãşu¿‚÷N“ª ?—aÿİ=ó˜¿v¿b²qx•?ìÊzŞFá—?@–%Äœúz?‚Æ
Ù}¥?˜R®w}Q[¿påì~¼£?=ëòv÷“?