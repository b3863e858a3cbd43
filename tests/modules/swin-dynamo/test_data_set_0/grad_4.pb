Bbody.block.norm1.weightJ@z›ñÁšÄ‹?¦Àt
—ž‹¿‘gu‚*j‡?øVajµ,£¿hãëbb{?
:jM‰?æP1—?ÏuüT>3¨¿