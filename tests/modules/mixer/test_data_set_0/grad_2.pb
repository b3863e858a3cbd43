Bbody.norm1.weightJ@eØˆq‡?nVÜæq?
›šqhf¿eJÞB‘?Ô=i_]¿?¥0¡K’¿”÷Ã”‡e¿òLuC¼J¿