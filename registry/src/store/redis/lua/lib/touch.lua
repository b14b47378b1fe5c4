-- Library in front of the script that appends, after that of lists.
-- touch: writes from this argument on what is listed, the time of the last activity, and the property
--   that the conversation waits, or ''; a conversation without an entry gets none. Returns the
--   argument after them.
local function touch(index, id, was, at)
  redis.call('HSET', KEYS[1], 'listing', ARGV[at])
  if was ~= '' then
    local properties = was:sub(29)
    if properties:sub(-14, -14) == 'w' then properties = properties:sub(1, -15) end
    relist(index, id, was, was:sub(1, 14) .. ARGV[at + 1] .. properties .. ARGV[at + 2])
  end
  return at + 3
end
