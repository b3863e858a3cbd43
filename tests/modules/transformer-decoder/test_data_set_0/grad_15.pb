Bbody.norm1.weightJ@$แ—๛y”ฟ3๙๖5”IR?qSขF?ยR?Iอรrÿ๙ฟ
8คAy?๔J*ยAฟjณํA?ล๘XTÜฟ