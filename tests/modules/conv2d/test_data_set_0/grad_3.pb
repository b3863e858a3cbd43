B	body.biasJ hfff©ôg?3338­¢¿ÿÿÿŸ
–¿633a×‚?