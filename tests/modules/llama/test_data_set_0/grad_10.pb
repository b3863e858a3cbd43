B#body.layers.1.attention_norm.weightJ€@2@u9à€?ô
õ®­Åƒ?@°ôö¿sˆvÄVC¿¥j]±„?'"iMAò„?Iî@‚ÄB›?–8pµ‚¿ST7è^¨¿ò`'-Ñ’¿°'g®w?íÆËÛz;‚?¦ĞmİyÕ‹¿É—ØíÄË‡¿¡+áÄÓÈ‰¿3Ï¿Ó\P˜¿