Bbody.depthwise.biasJ0H]õ£‰¿Å,€·¿`¯á•g¿HÒ-lÕY‹?¼uì¼¤
e?|ŠÔ*­³Š?