Bresidual2_norm.weightJ@Ør»hdÓ»‰«=
<¹ÌÄ¼QÕ`½
=Æñ½<ëùz¼Æv.<Sæ‚:j«:I<d½úÀ¼†ã7=»Â);