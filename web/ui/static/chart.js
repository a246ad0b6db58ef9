// Charts are drawn from the tables beneath them, so that both say the same. soon
"use strict";
