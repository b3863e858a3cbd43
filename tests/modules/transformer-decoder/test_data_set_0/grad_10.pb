B!body.multihead_attn.out_proj.biasJ@”Î±]a2q? <O
7<œ?é”åÎÙ´?ó'4]á°?%˜\j?æÖØŸœ¿TÅUq–¶¿þG¨»—’?