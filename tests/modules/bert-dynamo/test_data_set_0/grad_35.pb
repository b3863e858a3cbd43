Bbody.layers.1.norm1.biasJ€X1VqgÇ?NêfàĞ×¿z_Óš=å¿¬ÜJ.lÕå?"mEÓÑé?s<¬‘
Ñ¿ôN/]óSß¿x»i%>Ú¿ ~ğÕìôi¿]Û´OöRÂ?0#SŠ•‚Ï¿º`‡sÅ¿çOòBoè?€w)å³/Ì?÷Dñi[¬â¿Ï}O4Æ?