B
body.bias1J0Φ‚®Y,³?–ώ‘³ΑΏΈqzχν…t?Aύfx?y9l-C~?Θr:8rΏ