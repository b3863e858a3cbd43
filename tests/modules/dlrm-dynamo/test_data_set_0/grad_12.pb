Bbody.top.2.biasJù
lQ;]Ê¿