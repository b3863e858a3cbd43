Bbody.weight_ih_l0_reverseJ`@η°u¨τ²?>½]―‡Ή?Μ#z| Υ£?θd¬P~‘?Or³<χ?–.qC·‡Ώ―ZΩJ‘?sΈrΜ$—ΏGx
«¨Ί?±•5FµΏf"|¥E.ΓΏc{έπ§¬?