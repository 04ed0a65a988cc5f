"""The rules of Pombo: pure, standard library only. Records and times come in, records and words go out."""
