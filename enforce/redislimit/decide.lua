-- Judges and settles the charges of one request, in one atomic step at one instant. It is the twin of enforce.Settle,
-- whose comments are the law; tokenbucket has the arithmetic. All numbers are integers below 2^53, so exact.
--
-- KEYS     the distinct counters. Each holds struct.pack('>dd', level, time): the level of what was spent in 1/W token,
--          and the time in ticks at which it stood there.
-- ARGV[1]  the instant in microseconds, or -1 for this server's clock. With an instant given (tests), keys live an hour
--          longer than they need: the instants of a test run at another pace than the clock that expires keys.
-- ARGV[2…] eleven numbers a charge: rule, version, flags (1 what-if, 2 owns its actual counter), cost, amount, burst,
--          ceiling, window (ticks), tick (µs), and as positions in KEYS the deciding and the actual counter.
-- Returns  the number of stale states dropped, then for each charge: fits (0 or 1), left, wait (ticks, -1 never).
--
-- Example: one binding charge of cost 1 against 6 per 60 s with burst 6 (W = 60,000 ticks of 1 ms). Six calls at 0 s
-- leave level 360,000, which is stored to live 60,000 ms. The seventh finds 360,000 + 60,000 > 6 * 60,000 and returns
-- {0, 0, 0, 10000}: 60,000 units drain in 10,000 ticks, at 6 a tick. Nothing is written.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local now, slack = tonumber(ARGV[1]), 3600000
if now < 0 then
  local t = redis.call('TIME')
  now, slack = t[1] * 1000000 + t[2], 0
end

local level, time = {}, {}
for k, raw in ipairs(redis.call('MGET', unpack(KEYS))) do
  if raw then level[k], time[k] = struct.unpack('>dd', raw) end
end

local charges, count = {}, 0
for a = 2, #ARGV, 11 do
  local flags = tonumber(ARGV[a + 2])
  local tick = tonumber(ARGV[a + 8])
  count = count + 1
  charges[count] = {
    rule = ARGV[a], version = ARGV[a + 1], whatif = flags % 2 == 1, owns = flags >= 2, cost = tonumber(ARGV[a + 3]),
    amount = tonumber(ARGV[a + 4]), burst = tonumber(ARGV[a + 5]), ceiling = tonumber(ARGV[a + 6]),
    window = tonumber(ARGV[a + 7]), tick = tick, now = floor(now / tick),
    decides = tonumber(ARGV[a + 9]), actual = tonumber(ARGV[a + 10]),
  }
end

-- The arithmetic of tokenbucket.Params, for the numbers of charge c.

local function emptyIn(c, lvl)
  if c.amount == 0 then return 0 end
  return ceil(lvl / c.amount)
end

local function read(c, lvl, at) -- level, time, stale
  if not lvl then return 0, c.now, 0 end
  if at > c.now + c.window then return 0, c.now, 1 end
  lvl = min(lvl, c.ceiling * c.window)
  if c.now <= at then return lvl, at, 0 end
  local elapsed = c.now - at
  if elapsed >= emptyIn(c, lvl) then return 0, c.now, 0 end
  return lvl - elapsed * c.amount, c.now, 0
end

local function spend(c, lvl)
  return min(lvl + min(c.cost, c.burst) * c.window, 2 * c.ceiling * c.window)
end

local function left(c, lvl)
  if c.amount == 0 then return 0 end
  return floor(max(0, c.burst * c.window - lvl) / c.window)
end

local function wait(c, lvl, at)
  if c.amount == 0 or c.cost > c.burst then return -1 end
  local over = lvl + c.cost * c.window - c.burst * c.window
  if over <= 0 then return 0 end
  return at - c.now + ceil(over / c.amount)
end

local function expiry(c, lvl, at)
  lvl = min(lvl, c.ceiling * c.window)
  if lvl == 0 then return 0 end
  return at - c.now + emptyIn(c, lvl)
end

-- A lifetime is rounded up to milliseconds and never below one: no key without expiry exists.
local function set(call, c, key, lvl, at, ticks)
  local ms = max(1, ceil(ticks * c.tick / 1000)) + slack
  return call('SET', KEYS[key], struct.pack('>dd', lvl, at), 'PX', min(ms, 9007199254740991))
end

-- Judge.

local reply = {0}
local refusing, refusals, unfit = {}, 0, {}
for i, c in ipairs(charges) do
  local from = c.decides
  if not level[from] and from ~= c.actual then
    c.first, from = true, c.actual
  end
  local stale
  c.level, c.time, stale = read(c, level[from], time[from])
  reply[1] = reply[1] + stale
  local fits = c.amount > 0 and c.cost <= c.burst and c.level + c.cost * c.window <= c.burst * c.window
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = fits and 1 or 0, left(c, c.level), wait(c, c.level, c.time)
  if not fits then
    if c.whatif then
      unfit[c.version] = true
    elseif not refusing[c.rule] then
      refusing[c.rule], refusals = true, refusals + 1
    end
  end
end
local admitted = refusals == 0

-- Settle the actual counters: all of them or none. After[k] and afterTime[k] are counter k as it stands then.

local after, afterTime = {}, {}
for k in pairs(level) do after[k], afterTime[k] = level[k], time[k] end
if admitted then
  for _, c in ipairs(charges) do
    if c.owns then
      local lvl, at = read(c, level[c.actual], time[c.actual])
      after[c.actual], afterTime[c.actual] = spend(c, lvl), at
    end
  end
  for i, c in ipairs(charges) do
    if c.owns then
      local lvl, at, ticks = after[c.actual], afterTime[c.actual], 0
      for _, reader in ipairs(charges) do
        if reader.actual == c.actual then ticks = max(ticks, expiry(reader, lvl, at)) end
      end
      set(redis.call, c, c.actual, lvl, at, ticks)
      if c.decides == c.actual then reply[3 * i] = left(c, lvl) end
    end
  end
end

-- Settle the what-if counters. An error here (no memory left) must not void the answer above.

for i, c in ipairs(charges) do
  if c.decides ~= c.actual then
    local taken = admitted
    if c.whatif then
      taken = not unfit[c.version] and (refusals == 0 or refusals == 1 and refusing[c.rule])
    end
    if taken or admitted or (c.first and level[c.actual]) then
      local lvl = c.level
      if taken then
        lvl = spend(c, lvl)
        reply[3 * i] = left(c, lvl)
      end
      local actualLevel, actualTime = read(c, after[c.actual], afterTime[c.actual])
      set(redis.pcall, c, c.decides, lvl, c.time, max(expiry(c, lvl, c.time), expiry(c, actualLevel, actualTime)))
    end
  end
end

return reply
