BscaleJ@cÿÎ^c¢¿
Ãuôn¶¿A­QßHot¿@a5øëT ¿ô§­ ª>p¿aJ‹¥œ¿$€V·TÞt¿÷ã¼øqV£¿