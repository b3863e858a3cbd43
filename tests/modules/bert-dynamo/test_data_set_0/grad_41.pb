Bbody.classifier.biasJá^WŒ¥¥Î?¼©öñ·¿
Ü­Ã¿