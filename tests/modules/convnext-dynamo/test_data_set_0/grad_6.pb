Bbody.norm.biasJ0ú]KñO”¿W<éß÷…¿¶eih³`?Ù9Mx–¿?w×øô•w?¢U
Aßäj?