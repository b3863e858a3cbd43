Bbody.weightJ èOäµ
5†?È3Fm¸?íÑ÷M[­¿á+OÕû(¿