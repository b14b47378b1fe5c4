-- Appends one commit. The node knows what is stored of a conversation that it holds, and has worked
-- out what changes; the script checks that it is right, and carries it out. What is read is read
-- first: a server that refuses a read, or has no memory, refuses before anything is written.
-- KEYS: conversation, journal; those of parts and commands; last that of the day's usage, if there is any
-- ARGV: node, incarnation, epoch, nonce, seq before, the entry in lists before or '*' if it stays;
--   the number of events, that of fields and their values, that of the words of the commands; 'u' with
--   usage or ''; the events; the fields, each with its value; the commands: each with the index of its
--   key, the number of its arguments, and these; the parts; the usage: row, the row if there is no
--   room, numbers, most rows, seconds that it is kept
-- Returns DONE, FENCED, CONFLICT, or RELISTED if the entry is another one; DONE again when this very
--   commit was the last. A commit that claims returns the epoch in place of DONE.
local at, day, sums, is_new_day = commands, KEYS[#KEYS]
if ARGV[10] == 'u' then sums, is_new_day = sums_with(day, #ARGV - 4) end
each('RPUSH', KEYS[2], 11, fields - 1)
redis.call('HSET', KEYS[1], unpack(ARGV, fields, commands - 1))
while at < parts do
  local to = at + 2 + ARGV[at + 2]
  redis.call(ARGV[at], KEYS[tonumber(ARGV[at + 1])], unpack(ARGV, at + 3, to))
  at = to + 1
end
write_parts()
if sums then count(day, sums, is_new_day, ARGV[#ARGV]) end
return outcome
