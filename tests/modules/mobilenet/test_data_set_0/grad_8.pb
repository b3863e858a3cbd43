Bbody.block.depthwise.1.weightJ`Ââs¾NZ¿Òaı²ÿËu?±P‰Œ
9o¿˜ÈğwLüB?0]kèÉEP? ‹]`x;¿Ì#ûdŠr†?OçĞş?WcŠa;0¿ñ|LÂ[	Y¿W¿¤±Á…¿#Í]k[¸-?