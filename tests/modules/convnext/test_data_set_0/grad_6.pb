Bbody.norm.biasJ0Ќя5x?И`х√жгlњk„ґґ∞s?СјкнехvњpА“MєЈ~?»ЕС
'ЖR?