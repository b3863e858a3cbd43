Bbody.classifier.2.biasJ 0 3åÅ?cè#ñÉ?XB—¼Ğ¿¥M
»¼¿