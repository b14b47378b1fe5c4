-- Claims a conversation, and reads it if the claim was won.
-- KEYS: conversation, floor, journal, state
-- ARGV: the four of a claim, the format that the cached state must have, the bytes of a page
-- Returns the claim after the call, and what was read.
local format, max_bytes = ARGV[5], ARGV[6]
local held = claim()
local won = held[1] == ARGV[1] and held[2] == ARGV[2]
return {held, won and load(KEYS[1], KEYS[3], KEYS[4], format, max_bytes)}
