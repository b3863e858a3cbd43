Bbody.layer2.conv.1.biasJ0ÅFÏnÂõ~?
è„4d¿˜$ß|Jf?„PÖ v?šGõR5”¿ÂIo0şÉ“¿