Bbody.norm2.weightJ€ïßñ@æ$r?y¦£†šc?¾ƒÐ™¡/s¿nS0	U'j?1²Ñ©;n?oð2Póm‡?&ÓªºrA4¿¦E»™X<b?µ¦ÿö¹f¿ö Ô¢ðE¿ÄààBQs?îÚ'[´>Q¿«€zÃóF¿¤WƒïN.‚?¤ôÂ¸^Ðˆ¿€LÎ
ýèt?