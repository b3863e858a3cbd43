Bbody.norm3.weightJ@taµïn’¿'®ïçZ"œ?àW
³$ïe¿Ô3¤ÿ”¿A=´‰Xã–?œ_ŽÒ›*?šŸ¼˜À-ª¿žvˆHˆ¿