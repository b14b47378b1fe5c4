-- Library in front of the scripts that write what lists show of a conversation, after that of fields.
-- Its entry, in the field `listed`, has the time of its creation, that of its last activity, and its
-- properties.
-- add_members: adds the members of the index that these properties have in an order, each after this
--   score, if there is one. `suffix` is the time and the id.
local function add_members(members, order, properties, suffix, score)
  for at = 1, #properties, 14 do
    if score then members[#members + 1] = score end
    members[#members + 1] = order .. properties:sub(at, at + 13) .. suffix
  end
end

-- replace: replaces members of the index.
local function replace(index, gone, new)
  if gone[1] then redis.call('ZREM', index, unpack(gone)) end
  if new[1] then redis.call('ZADD', index, unpack(new)) end
end

-- relist: replaces the members of an entry by those of another one; '' for none.
local function relist(index, id, was, is)
  local gone, new = {}, {}
  add_members(gone, 'c', was:sub(29), was:sub(1, 14) .. id)
  add_members(gone, 'a', was:sub(29), was:sub(15, 28) .. id)
  add_members(new, 'c', is:sub(29), is:sub(1, 14) .. id, 0)
  add_members(new, 'a', is:sub(29), is:sub(15, 28) .. id, 0)
  replace(index, gone, new)
end

-- list: writes from this argument on what is listed, metadata, participants and the entry, given the
--   entry before.
local function list(index, id, was, at)
  for i, field in ipairs({'listing', 'metadata', 'participants'}) do
    local value = ARGV[at + i - 1]
    if value ~= '' then set(field, value) else redis.call('HDEL', KEYS[1], field) end
  end
  relist(index, id, was, ARGV[at + 3])
  set('listed', ARGV[at + 3])
end
