BlossJ®
õL8×¿