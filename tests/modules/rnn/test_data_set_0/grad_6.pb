Bbody.bias_hh_l0J Ъt└фgf┴┐9_lхъ┬?┐#С?
й┐╟5зб0Т┐