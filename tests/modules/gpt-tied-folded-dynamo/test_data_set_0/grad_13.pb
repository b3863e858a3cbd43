Bbody.blocks.0.mlp.down.biasJ€Ú.o´º¿üî®Vß¿?$ãûÀ0‘?béUãZ„¿Cp3Ýõz·?°¯ëuwZ±?eî^K>»×¿wEšHË¿­•^þ ¾¿k'£ÙÙJÇ?ì“&â÷¤?£‰ÛlÖ¿Â?Yå›X<Ý?g°oz
äÉ¿Ð·ÎÙ,T¿3¡3yã<º¿