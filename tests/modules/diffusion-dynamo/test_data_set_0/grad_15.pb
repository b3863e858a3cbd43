Bbody.norm3.biasJ@ºr&ÆO½¿~ÚÅCÐt¿ù¯²Õz–³¿s¹IaÆ©¿ZL
O5¬?Î;Éq¨¿VfèËK	¤¿CÀa}„±¤¿