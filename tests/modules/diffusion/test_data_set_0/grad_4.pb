Bbody.norm2.weightJ@“š dŽ=¿?PššÑ
 ’?œ|Ç{®³?Mf¦<9#±?Oð#ª·Í¥?ï	&¼Ó?Âés4Šn²?ZÞ€znu‹?