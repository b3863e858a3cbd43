Bbody.layer1.conv.1.weightJ 9s\•1a?&$¬‚¿bÆ½vÉ}¿ç‚§È
š?