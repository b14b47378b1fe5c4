-- Claims a conversation that nobody holds, or the dead one.
return claim()
