Bbody.norms.1.weightJ€ÉÐØÄ•«¿í«Qé
>¿x&²Ô ¿¿÷X"Ó¼”¿B$xO‰¿ÑýGòžt?Z%½–?†O6ï1üŠ¿¿O¡Di²?I]á»ûK£?Ì5uK¸›Z?U²ðN?O™°ÖbO>?ƒœtˆÏt?J…kgéª¦¿Yó=·<“?