Bbody.blocks.1.ln2.biasJА╧Г√rЫ7a┐sЯJ)q`Х┐uB╤з$gМ┐0\т╕ажy?ю'A-iА?нmЬI
О?Kk ╢YЬ?8'▀олг?.├ё╕	OЛ?Б4p\В?dЦвCЫ^А?А░аBD─f?▓∙╩L∙О┐XY╓РєГ┐Ш*а┐E\┐XyцVDО┐