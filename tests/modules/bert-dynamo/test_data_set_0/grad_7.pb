B"body.layers.0.attention.query.biasJ€ö´ælS£Å?#
Ÿ!'çª¿½?"ïÅK¿äÀyoÌjˆ?Ïp­Óqœ¿ÅºÐ9“³¬¿ýq“›—‹?(}Ç>íOl?R€šÖ¸¤·?9àomFÂ?$ˆNj)–¿)^§[Î,£¿ñ®T:‹LÉ¿ïMÔ…EÎ¹?Ê®”éº’•?„ÙúûÌ<·¿