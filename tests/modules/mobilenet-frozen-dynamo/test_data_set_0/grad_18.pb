
Bbody.classifier.0.biasJP└ўdёЗ┐C╢еЎки┐t;Їk║в┐S%├&"	м┐▒─DЩ╡?╪B┘╥XМ╗?LЯ╬╧бoг?А{чlї▄%?║vк║┌╨Ж?╛g┼3yи?