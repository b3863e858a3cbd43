Bbody.blocks.1.ln2.weightJ€`ýc?Y½ÈCï™j¿«ÿ>BVš?‡¿[‰àq~?üWª)vs?¬ÃðvñÎn?H€Ùc.o–¿`·¤³K´t?:t»GœØ‡¿Ê)
ÏhWo¿èRW|¿¹Å³œ*ˆ?Giœ“?0×ù•ÛA?KÉ	™ÉŸ›¿FÜ{€?