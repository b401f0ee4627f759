"""The recurrent cells, by name."""

from concord.net.cells import gru, lstm, peephole, rnn

CELLS = {cell.name: cell for cell in (lstm.LSTM, peephole.PEEPHOLE, gru.AFTER, gru.BEFORE, rnn.TANH, rnn.RELU)}
