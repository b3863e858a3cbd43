Bbody.2.weightJ@i&H«è,³¿C=î~Ýòª¿J4;K5¨¿Ü,¥‰wÞ·¿ïhq˜«O§?ÞKÍ”á¡³?X\
õu?3œË…fª?