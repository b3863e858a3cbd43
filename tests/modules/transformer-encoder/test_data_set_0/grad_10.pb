Bbody.norm1.weightJ@MAŠp¹?
n^…c¢?}èï}?>Í­]i „?Ùf½©W§?‚ìÛ¡®¿éH2DŸ©¿l¿~üÑ•?