-- Reads a conversation.
-- KEYS: conversation, journal, state
-- ARGV: the format that the cached state must have; '' for all events and no cache
-- Returns nothing where there is no conversation; else its seq, the cached state or '', its events.
return load(KEYS[1], KEYS[2], KEYS[3], ARGV[1])
