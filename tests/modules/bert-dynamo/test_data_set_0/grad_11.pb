B"body.layers.0.attention.value.biasJ€·à!·Å¿ÅªcÒ;½¿Z·‘Ón¼é¿Ô »+a³?´B¼†ùUÜ¿-K:ì‰LÖ?P‡_Ä”7À¿rŠYÌ¿‡ØkÜ¸Å?
Ñy´Ù?‡—LêÕ?z¦:RÖ¿ş;kúÇ?È?Y+P¶¿'èXQ´?~Q¹Ú'ç?