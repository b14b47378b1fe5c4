-- Library in front of the script that appends, after that of lists.
-- touch: writes from this argument on what is listed, the time of the last activity, and the property
--   that the conversation waits, or ''; a conversation without an entry gets none. The members by the
--   time of creation stay, but for that property. Returns the argument after them.
local function touch(index, id, was, at)
  local active, awaiting = ARGV[at + 1], ARGV[at + 2]
  set('listing', ARGV[at])
  if was == '' then return at + 3 end
  local created, properties, awaited = was:sub(1, 14), was:sub(29), ''
  if properties:sub(-14, -14) == 'w' then
    properties, awaited = properties:sub(1, -15), properties:sub(-14)
  end
  local gone, new = {}, {}
  add_members(gone, 'a', properties .. awaited, was:sub(15, 28) .. id)
  add_members(gone, 'c', awaited, created .. id)
  add_members(new, 'a', properties .. awaiting, active .. id, 0)
  add_members(new, 'c', awaiting, created .. id, 0)
  replace(index, gone, new)
  set('listed', created .. active .. properties .. awaiting)
  return at + 3
end
