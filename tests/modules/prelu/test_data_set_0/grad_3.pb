Bbody.1.weightJ0 ”¡!ô­?š}›¿Râ‹BFëŸ¿tsù
]c²¿Ø©<Á)çŠ¿ã¤m0qlt¿