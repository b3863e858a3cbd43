B"body.layers.0.attention.query.biasJ€Ó<—Ë\Øb?wZ‡Ø×š¿t:B`œ¿õQ*G¡¿Û¤¿TmÏ?tÉÌ„¦OÎ¿
¸íÉ¤¿×¦D*G&Â¿ºþ0—S™°¿ë_Ûü›?'bffpþ¸?ðý!Ÿ@–¿üŽòì_¬?}êDÖ”¿J^f1Õý¿”wM€Q¸¿