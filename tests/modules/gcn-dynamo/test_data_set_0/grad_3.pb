B
body.bias2J7ÓVh&Á?Ör­6¤Û¿:	‚‚¢€Ò?