-- Library in front of the scripts that write what lists show of a conversation. Its entry, in the
-- field `listed`, has the time of its creation, that of its last activity, and its properties.
-- members_of: the members of the index that an entry stands for.
local function members_of(entry, id)
  local members, created, active = {}, entry:sub(1, 14), entry:sub(15, 28)
  for at = 29, #entry, 14 do
    local property = entry:sub(at, at + 13)
    members['c' .. property .. created .. id] = true
    members['a' .. property .. active .. id] = true
  end
  return members
end

-- relist: replaces the entry of a conversation, and its members of the index; '' for none.
local function relist(index, id, was, is)
  local before, after, gone, new = members_of(was, id), members_of(is, id), {}, {}
  for it in pairs(before) do if not after[it] then gone[#gone + 1] = it end end
  for it in pairs(after) do if not before[it] then new[#new + 1], new[#new + 2] = 0, it end end
  if #gone > 0 then redis.call('ZREM', index, unpack(gone)) end
  if #new > 0 then redis.call('ZADD', index, unpack(new)) end
  if is ~= '' then redis.call('HSET', KEYS[1], 'listed', is) end
end

-- list: writes from this argument on what is listed, metadata, participants and the entry, and
--   returns the argument after them.
local function list(index, id, was, at)
  for i, field in ipairs({'listing', 'metadata', 'participants'}) do
    local value = ARGV[at + i - 1]
    if value == '' then redis.call('HDEL', KEYS[1], field)
    else redis.call('HSET', KEYS[1], field, value) end
  end
  relist(index, id, was, ARGV[at + 3])
  return at + 4
end
